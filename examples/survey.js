// anabranch script examples/survey.js --input topics='["cancel", "retry"]'
//
// One agent a topic, all at the same time; then one that puts their answers together.
const topics = inputs.topics ?? ["cancellation", "journal"];
log(`looking for ${topics.join(" and ")}`);

const answers = await parallel(topics.map(topic => () =>
  agent(`Where is ${topic} handled?`, { label: topic, tools: ["read_file", "grep", "glob", "list_directory", "run_search"] })));

const found = topics
  .map((topic, place) => ({ topic, answer: answers[place] }))
  .filter(({ answer }) => answer !== null);

return found.map(({ topic, answer }) => `${topic}: ${answer.split("\n")[0]}`).join("\n");
