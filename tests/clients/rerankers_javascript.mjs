// Clients of rerankers in JavaScript: Cohere's SDK, Voyage's, and the AI SDK's provider of Together AI.
// packages: cohere-ai@8.1.0 voyageai@0.4.0 ai@6 @ai-sdk/togetherai@2

import assert from "node:assert";
import { createTogetherAI } from "@ai-sdk/togetherai";
import { rerank } from "ai";
import { CohereClient, CohereClientV2 } from "cohere-ai";
import { VoyageAIClient } from "voyageai";
import { embedder, main, row, url } from "./rows.mjs";

const model = "ranker", query = "what is a license";
const documents = [
  "Foxes jump over dogs.", "The license applies to any work.", "A notice.", "Dogs sleep.",
];
const v1 = new CohereClient({ token: "none", environment: url });
const v2 = new CohereClientV2({ token: "none", environment: url });
const voyage = new VoyageAIClient({ apiKey: "none", environment: `${url}/v1` });

function ordered(scores, count) {
  assert.equal(scores.length, count);
  assert.ok(scores.every((one) => one >= 0 && one <= 1));
  assert.deepEqual(scores, [...scores].sort((a, b) => b - a));
}

row("CohereClientV2 rerank", async () => {
  const { results } = await v2.rerank({ model, query, documents, topN: 3, maxTokensPerDoc: 100 });
  ordered(results.map((one) => one.relevanceScore), 3);
});

row("CohereClient rerank", async () => {
  const { results } = await v1.rerank({
    model, query, documents: documents.map((text) => ({ text })), returnDocuments: true,
  });
  assert.ok(results.every((one) => one.document.text === documents[one.index]));
});

row("voyage rerank", async () => {
  const { data } = await voyage.rerank({ model, query, documents, topK: 2, returnDocuments: true });
  ordered(data.map((one) => one.relevanceScore), 2);
  assert.ok(data.every((one) => one.document === documents[one.index]));
});

row("voyage embed", async () => {
  const { data } = await voyage.embed({
    model: embedder, input: ["Hello", "You"], inputType: "document", truncation: true,
  });
  assert.deepEqual(data.map((one) => one.embedding.length), [384, 384]);
});

row("AI SDK rerank by Together AI's provider", async () => {
  const together = createTogetherAI({ apiKey: "none", baseURL: `${url}/v1` });
  const { ranking } = await rerank({ model: together.reranking(model), query, documents, topN: 2 });
  assert.equal(ranking.length, 2);
});

await main();
