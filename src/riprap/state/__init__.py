"""What operators remember: keys, window pages, the folder that holds them, and the ledger that names them."""
