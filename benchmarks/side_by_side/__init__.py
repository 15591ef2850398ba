"""Sides that do the same work on the same text, measured beside one another.

A *side* is tokmill or a peer; a *case* is one piece of work (a vocabulary, a text, a number of threads).
Laws:

- Each side of a case has a process of its own (`worker`) that is told over a pipe what to do, so that sides
  share neither memory nor caches; all of them are children of one process (`rounds`), which has them take
  turns, one at work at a time, in an order that moves on by one with every round.
- A time counts only if the result that was made in that time is right (`checks`). A wrong one is shown in
  brackets with what is wrong about it, and enters no ratio.
- What is measured is one call of a side's own interface for bulk work, on text that lies in memory in the
  form that the side likes best. Importing, loading, compiling and a first tiny call come before.
- Figures are medians over rounds; CPU time is that of all threads of the process.
"""
