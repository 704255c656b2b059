"""Default layouts: which mapping, vector width and block size each kernel gets."""
