"""Short texts of three subjects, each known by its words."""

import numpy as np

SUBJECTS = {
    "travel": ["train", "station", "ticket", "plane", "hotel", "journey", "luggage", "airport", "passenger", "railway"],
    "food": ["bread", "soup", "kitchen", "cheese", "dinner", "cook", "vegetable", "butter", "recipe", "flour"],
    "music": ["piano", "guitar", "song", "concert", "orchestra", "singer", "violin", "melody", "band", "album"],
}


def sentences(each=12, seed=0):
    draw = np.random.default_rng(seed)
    return [
        (f"the {' and the '.join(draw.choice(words, 3, replace=False))}", subject)
        for _ in range(each)
        for subject, words in SUBJECTS.items()
    ]
