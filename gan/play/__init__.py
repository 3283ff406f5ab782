"""Playing with a trained generator: faces as points in its latent space. No training."""
