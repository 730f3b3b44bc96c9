// Sends a message and prints what comes back; exit 1 when nothing does.
//   ws.js ws|global URL TEXT
'use strict';
const [, , how, url, text] = process.argv;

function end(code, line) {
  console.log(line);
  process.exit(code);
}

if (how === 'ws') {
  const { WebSocket } = require('ws');
  const options = {};
  if (process.env.https_proxy) {
    const { HttpsProxyAgent } = require('https-proxy-agent');
    options.agent = new HttpsProxyAgent(process.env.https_proxy);
  }
  const socket = new WebSocket(url, options);
  socket.on('open', () => socket.send(text));
  socket.on('message', (message) => end(0, String(message)));
  socket.on('unexpected-response', (request, answer) => {
    const parts = [];
    answer.on('data', (part) => parts.push(part));
    answer.on('end', () => end(1, `${answer.statusCode} ${Buffer.concat(parts)}`));
  });
  socket.on('error', (error) => end(1, String(error)));
} else {
  const socket = new WebSocket(url);
  socket.onopen = () => socket.send(text);
  socket.onmessage = (event) => end(0, String(event.data));
  socket.onerror = (event) => end(1, `failed: ${event.message || event.error || event.type}`);
}
setTimeout(() => end(1, 'nothing came'), 60000).unref();
