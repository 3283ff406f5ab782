"""Tools to play with a trained generator: explore, move and mix faces in its latent space. Nothing here trains."""
