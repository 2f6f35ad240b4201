import { ProtocolHandler } from "@nats-io/nats-core/internal";

// Loaded before a program (`node --import`): at SIGUSR2 its client gives the connection to NATS up for good, as it does
// after a failure of its own that no server can cause at will.

const connect = ProtocolHandler.connect.bind(ProtocolHandler);
ProtocolHandler.connect = async (...given) => {
  const connection = await connect(...given);
  process.once("SIGUSR2", () => void connection.close(new Error("given up by a test")));
  return connection;
};
