// A control loop in Node that asks `tether serve`, with the standard library only: the protocol is enough.
// node examples/node_client.mjs URL PLANT [EPISODE]     (a token, if there is one, in TETHER_TOKEN)
// The plant: a boiler near 20 degrees. Its prior is here too, to be played if no answer comes in time.
const [url, plant, episode = `node-${Date.now()}`] = process.argv.slice(2);
const headers = { "Content-Type": "application/json", Authorization: `Bearer ${process.env.TETHER_TOKEN ?? ""}` };
const prior = temperature => 20 - temperature;
const waiting = [];                                   // calls that were not answered yet, oldest first

async function send(milliseconds) {                   // the same calls again, until each is answered; null if none comes
  const until = Date.now() + milliseconds;
  let last = null;
  while (waiting.length && Date.now() < until) {
    const [name, body] = waiting[0];
    try {
      const signal = AbortSignal.timeout(Math.max(1, until - Date.now()));
      const answer = await fetch(`${url}/v1/plants/${plant}/episodes/${episode}/${name}`,
        { method: "POST", headers, body: JSON.stringify(body), signal });
      last = await answer.json();
      if (answer.status === 429 || answer.status === 503) throw new Error(last.error);
      if (!answer.ok) console.error(`${name}: ${last.error}`), last = null;
      waiting.shift();
    } catch { last = null; await new Promise(done => setTimeout(done, 20)); }
  }
  return waiting.length ? null : last;
}
const call = (name, body, milliseconds = 500) => (waiting.push([name, body]), send(milliseconds));

let temperature = 18, total = 0;
await call("reset", {});
for (let round = 1; round <= 3; round += 1) {
  const proposal = 9 * Math.cos(round);               // the learner
  const answer = await call("act", { round, observation: temperature, proposal });
  const action = answer?.action ?? prior(temperature);
  temperature += 0.5 * action + 0.1;                  // the plant
  const cost = 1 + Math.abs(20 - temperature) / 10;
  total += cost;
  await call("observe", { round, cost, applied: action });
  console.log(JSON.stringify({ round, action, reason: answer ? answer.reason : "no answer", cost }));
}
while (waiting.length) await send(5000);              // the account is whole before the loop ends
console.log(JSON.stringify({ episode, total }));
