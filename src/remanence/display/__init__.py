"""How results show themselves: plain numbers in, a small table or a picture out. Knows no type of ours."""
