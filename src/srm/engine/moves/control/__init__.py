"""Control records of moves: registers, routes, plans and progress."""
