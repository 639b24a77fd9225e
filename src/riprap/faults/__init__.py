"""What a fault at each operator does to the answers: faults injected, outputs scored, operators ranked."""
