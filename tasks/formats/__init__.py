"""How data lies on disk: text that is read, artifacts' files, and packed sequences.

What opens a file of an artifact raises `StoreError` if it is missing, broken, or not what its artifact says,
and `MachineError` if the machine cannot read it.
"""
