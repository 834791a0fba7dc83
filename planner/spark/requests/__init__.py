"""What crosses between the JVM and the planner, and what it means: requests, answers, and the predicates in them."""
