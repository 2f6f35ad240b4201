// A Fastify route that answers the bytes of its argument: the least that a request costs.
import { stdout } from "node:process";
import Fastify from "fastify";

const body = process.argv[2] ?? "";
const app = Fastify();
app.get("/workspaces/:id", async (_request, reply) => reply.type("application/json; charset=utf-8").send(body));
stdout.write(`${await app.listen({ host: "127.0.0.1", port: 0 })}\n`);
