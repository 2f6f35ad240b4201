import type { ReactNode } from "react";
import { Brand } from "./brand.tsx";

/** A page of somebody who isn't signed in. */
export function Entry({ title, children }: { title: string; children: ReactNode }) {
  return (
    <main className="entry">
      <p className="brand">
        <Brand />
      </p>
      <section className="card">
        <h1>{title}</h1>
        {children}
      </section>
    </main>
  );
}
