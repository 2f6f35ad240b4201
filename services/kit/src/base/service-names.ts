/** The services, by their folder's name, which is also the audience of their internal tokens. */
export const serviceNames = ["identity", "workspace", "image-registry", "sandbox", "telemetry"] as const;
export type ServiceName = (typeof serviceNames)[number];
