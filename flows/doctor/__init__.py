"""`tokmill doctor`: looks at the installation, the machine, its speed, the store and the server.

Each part returns facts, for people and for `--json`, and findings. A finding says what is wrong, and the fix.
Nothing is changed, but for an object that is written beside a store in a bucket and removed again.
"""
