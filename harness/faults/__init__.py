"""Sound clients broken on purpose: each fault with the case that must fail and the cause that its finding must name.

A *recorded* fault breaks a client that serves a real capture, kept in a file: it needs no vLLM and no torch. A *live*
one breaks our executor client, or the extension in its workers, on the vLLM installed here.
"""
