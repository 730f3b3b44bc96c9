// One request: prints the status and the body; exit 1 from 400 on or when nothing came.
//   fetch.js fetch|https METHOD URL [BODY]
'use strict';
const [, , how, method, url, body] = process.argv;

function show(status, protocol, text) {
  console.log(status, protocol);
  console.log(text);
  process.exitCode = status >= 400 ? 1 : 0;
}

function failed(error) {
  console.error(String(error), error.cause ? String(error.cause) : '');
  process.exitCode = 1;
}

if (how === 'fetch') {
  fetch(url, { method, body, signal: AbortSignal.timeout(60000) })
    .then(async (answer) => show(answer.status, answer.statusText, await answer.text()))
    .catch(failed);
} else {
  const request = require('node:https').request(url, { method, timeout: 60000 }, (answer) => {
    const parts = [];
    answer.on('data', (part) => parts.push(part));
    answer.on('error', failed);
    answer.on('end', () =>
      show(answer.statusCode, `HTTP/${answer.httpVersion} ${answer.statusMessage}`, Buffer.concat(parts).toString()));
  });
  request.on('timeout', () => request.destroy(new Error('timed out')));
  request.on('error', failed);
  request.end(body);
}
