"""A progress that records what is reported."""

import pytest

from selfsent.progress import Progress


class Reports(list, Progress):
    """The reports as tuples of stage, done and total."""

    def report(self, stage, done, total=None):
        self.append((stage, done, total))


@pytest.fixture
def reports():
    return Reports()
