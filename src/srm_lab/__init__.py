"""The embedded stack, the demo, the fakes and the simulated world: no part of the product."""
