"""What each operator computes: kernels over Arrow batches and state pages. No Spark here."""
