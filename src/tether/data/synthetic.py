"""Generated episodes, calibrated to real series, so that everything runs on a fresh machine."""
