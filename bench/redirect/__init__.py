"""Time that unmodified clients take to follow a changed address: ``make clients``.

Real clients (Java of three versions, librdkafka), a real name server and a real load balancer run
in separate network namespaces. That needs root and changes nothing on the machine.
"""
