/** The services, by their folder's name, which is also the audience of their internal tokens. */
export const serviceNames = ["identity", "workspace", "image-registry", "sandbox", "telemetry"] as const;
export type ServiceName = (typeof serviceNames)[number];

/** Who calls services: the facade, the services themselves, and what collects logs and samples on the nodes of a cluster. */
export const callerNames = ["facade", ...serviceNames, "collector"] as const;
