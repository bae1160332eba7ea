"""Tables and figures of the papers: what each is made of, and the runs that measure it again."""
