/** The services by the names of their folders, which are also the audiences of internal tokens. */
export const serviceNames = ["identity", "workspace", "image-registry", "sandbox", "telemetry"] as const;
export type ServiceName = (typeof serviceNames)[number];

/**
 * Who may call services: the facade, the gateway that serves previews apart from it, the services themselves, and the
 * collectors on the nodes of a cluster.
 */
export const callerNames = ["facade", "gateway", ...serviceNames, "collector"] as const;
