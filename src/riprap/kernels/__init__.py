"""What the work of several operators is made of: computing over Arrow batches and state pages. No Spark here."""
