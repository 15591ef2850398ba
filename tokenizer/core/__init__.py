"""What every other part of the tokenizer needs: errors, buffers of text, counts, and stopping."""
