"""Speed, always as ratios within one run, and the weights of the built pages: ``make bench``."""
