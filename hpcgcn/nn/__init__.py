"""Models: steps with hand-written backward passes, parameters, and the plan of their arrays."""
