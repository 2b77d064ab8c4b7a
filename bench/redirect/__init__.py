"""How long unmodified clients take to another cluster when an address changes: ``make clients``.

Real clients (Java of three versions, librdkafka), a real name server and a real load balancer, in
network namespaces of their own: so root is needed, and nothing of the machine is touched.
"""
