/** Where MongoDB and NATS are. The platform's own namespace is not for servers that start as root. */
export const serversNamespace = "servers";

export const databases = { image: "registry.test/mongod:1", host: `mongodb-0.mongodb.${serversNamespace}:27017` };

/**
 * A MongoDB replica set of one with the keys of deploy/secrets.sh, and a NATS server with the configuration of
 * deploy/nats.
 */
export function describeServers(): object[] {
  return [
    ...describeServer({
      name: "mongodb",
      image: databases.image,
      port: 27_017,
      args: [
        ...["--replSet", "rs0", "--bind_ip_all", "--dbpath", "/data", "--keyFile", "/keys/keyfile"],
        ...["--wiredTigerCacheSizeGB", "0.25", "--oplogSize", "64"],
      ],
      // A key that others may read is refused.
      volume: { name: "config", mountPath: "/keys", secret: { secretName: "mongodb", defaultMode: 0o400 } },
    }),
    ...describeServer({
      name: "nats",
      image: "registry.test/nats-server:1",
      port: 4222,
      args: ["-c", "/config/nats-server.conf"],
      envFrom: [{ secretRef: { name: "nats" } }],
      volume: { name: "config", mountPath: "/config", configMap: { name: "nats" } },
    }),
  ];
}

function describeServer(o: {
  name: string;
  image: string;
  port: number;
  args: readonly string[];
  envFrom?: readonly object[];
  volume: { name: string; mountPath: string; secret?: object; configMap?: object };
}): object[] {
  const { mountPath, ...volume } = o.volume;
  const labels = { "app.kubernetes.io/name": o.name };
  const metadata = { name: o.name, namespace: serversNamespace };
  return [
    {
      apiVersion: "v1",
      kind: "Service",
      metadata,
      // A replica set of MongoDB is found by its members' names before it is ready.
      spec: { clusterIP: "None", publishNotReadyAddresses: true, selector: labels, ports: [{ port: o.port }] },
    },
    {
      apiVersion: "apps/v1",
      kind: "StatefulSet",
      metadata,
      spec: {
        serviceName: o.name,
        replicas: 1,
        selector: { matchLabels: labels },
        template: {
          metadata: { labels },
          spec: {
            containers: [
              {
                name: "server",
                image: o.image,
                args: o.args,
                ...(o.envFrom && { envFrom: o.envFrom }),
                ports: [{ containerPort: o.port }],
                resources: { requests: { cpu: "30m" } },
                readinessProbe: { tcpSocket: { port: o.port }, periodSeconds: 1 },
                volumeMounts: [
                  { name: "data", mountPath: "/data" },
                  { name: o.volume.name, mountPath },
                ],
              },
            ],
            // In memory: they wait for the disk a lot while databases and streams are made.
            volumes: [{ name: "data", emptyDir: { medium: "Memory" } }, volume],
          },
        },
      },
    },
  ];
}
