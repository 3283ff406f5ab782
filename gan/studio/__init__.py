"""The studio: a page in the browser to train a generator, to play with it, and to give it away."""
