"""What a task does with a batch, wherever it runs: on Spark, or in the memory of one process. No Spark here."""
