"""Every method that can be run by its name, one file a method or a family of them.

A file holds settings that check themselves and a call of the algorithm, which it imports only when
it runs. A new method is a new file here; nothing else lists it.
"""
