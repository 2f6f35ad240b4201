// A reverse proxy of Node.js and nothing more: what a preview is compared with.
import { Agent, createServer, request } from "node:http";
import type { AddressInfo } from "node:net";

const [host, port] = process.argv.slice(2);
const agent = new Agent({ keepAlive: true });

const server = createServer((asked, response) => {
  const { method, url: path, headers } = asked;
  const sent = request({ host, port, method, path, headers, agent }, (answer) => {
    response.writeHead(answer.statusCode ?? 502, answer.headers);
    answer.pipe(response);
  });
  asked.pipe(sent);
}).listen(0, "127.0.0.1", () => {
  process.stdout.write(`http://127.0.0.1:${(server.address() as AddressInfo).port}\n`);
});
