"""`tokmill doctor`: examines the installation, the machine, its speed, the store and the server.

Each part returns facts and findings with fixes. Nothing is changed, but for a probe in a bucket.
"""
