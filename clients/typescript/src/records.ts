// The records of the API, as the client names their fields.
import type { components } from "./api.ts";

type Schemas = components["schemas"];

export type SandboxRecord = Schemas["Sandbox"];
export type SandboxState = Schemas["SandboxState"];
export type StateReason = Schemas["StateReason"];
export type Image = Schemas["Image"];
export type Registry = Schemas["Registry"];
export type Workspace = Schemas["Workspace"];
export type Member = Schemas["Member"];
export type Role = Schemas["Role"];
export type Permission = Schemas["Permission"];
export type ApiToken = Schemas["ApiToken"];
export type CreatedApiToken = Schemas["CreatedApiToken"];
export type AuditEntry = Schemas["AuditEntry"];
export type User = Schemas["User"];
export type Session = Schemas["Session"];
export type SessionTokens = Schemas["SessionTokens"]["tokens"];
export type Identity = Schemas["Identity"];
export type SecondFactor = Schemas["SecondFactor"];
export type NewSecondFactor = Schemas["NewSecondFactor"];
export type ProcessRecord = Schemas["Process"];
export type ProcessState = Schemas["ProcessState"];
export type Entry = Schemas["Entry"];
export type EntryType = Schemas["EntryType"];
export type LogEntry = Schemas["LogEntry"];
export type Preview = Schemas["Preview"];
export type CreatedPreview = Schemas["CreatedPreview"];
export type PreviewLink = Schemas["PreviewLink"];
export type ListeningPort = Schemas["ListeningPort"];
export type AccountRecord = Schemas["Account"];
export type MetricPoint = Schemas["MetricPoint"];
