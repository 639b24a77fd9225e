"""What comes in: the rows of sources, found, numbered and read, and the tables of lookups. No Spark here."""
