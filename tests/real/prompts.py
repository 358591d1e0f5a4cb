"""50 prompts: prose, questions, code, lists and other languages."""

PROMPTS = """\
The capital of France is
Once upon a time, in a village by the sea, there lived
Water boils at a temperature of
def fibonacci(n):
The three primary colours are
In 1969, the first human being to walk on the Moon
Photosynthesis is the process by which
To be, or not to be, that is
import numpy as np
Dear Sir or Madam,
The quick brown fox
Ingredients: 200 g flour, 2 eggs,
Q: What is the largest planet in the solar system? A:
SELECT name, age FROM users WHERE
The mitochondrion is
Paris, London, Berlin, Madrid,
1, 2, 3, 5, 8, 13,
Bonjour, je m'appelle
Die Hauptstadt von Deutschland ist
Abstract. In this paper we show
How do I sort a list in Python?
My favourite season is autumn, because
Breaking news: scientists have discovered
The theory of evolution was proposed by
If it rains tomorrow, we will
A recipe for apple pie starts with
Shakespeare wrote
Machine learning is a field of
<html><head><title>
The stock market fell today after
She opened the letter slowly and read:
for i in range(10):
Photosynthesis, respiration and digestion are
The Great Wall of China was built
El sol sale por
Newton's second law states that
Chapter 1. It was a dark night, and
The opposite of hot is
User: Hello! Assistant:
Translate to French: Good morning. Answer:
The human heart has
#include <stdio.h>
According to the article, the main reason
Mix the butter and the sugar until
The Roman Empire fell because
There are seven days in a week: Monday,
A prime number is a number that
He said that he would never
Climate change affects
Finally, I would like to thank""".splitlines()
