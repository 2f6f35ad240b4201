// Made from the OpenAPI document: `npm run generate:client`.


export interface paths {
    "/admin/audit-log": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: {
            parameters: {
                query?: {
                    action?: "user.register" | "user.verify" | "user.link" | "user.unlink" | "user.sign_in" | "user.change_password" | "user.reset_password" | "user.read" | "user.list" | "user.disable" | "user.enable" | "user.make_operator" | "user.delete" | "identity.list" | "second_factor.read" | "second_factor.enable" | "second_factor.remove" | "second_factor.use_recovery_code" | "second_factor.replace_recovery_codes" | "session.list" | "session.end" | "session.end_all" | "api_token.create" | "api_token.list" | "api_token.revoke" | "api_token.revoke_all" | "workspace.create" | "workspace.list" | "workspace.read" | "workspace.update" | "workspace.take_over" | "workspace.delete" | "member.add" | "member.list" | "member.update" | "member.remove" | "image.create" | "image.list" | "image.read" | "image.update" | "image.delete" | "registry.create" | "registry.list" | "registry.read" | "registry.update" | "registry.delete" | "sandbox.provision" | "sandbox.list" | "sandbox.read" | "sandbox.read_logs" | "sandbox.extend" | "sandbox.stop" | "sandbox.exec" | "process.start" | "process.list" | "process.read" | "process.write" | "process.signal" | "process.end" | "file.read" | "file.list" | "file.write" | "file.move" | "file.delete" | "file.archive" | "port.list" | "port.connect" | "preview.create" | "preview.list" | "preview.read" | "preview.revoke" | "preview.link" | "audit_log.read";
                    /** @description The id of the user who did it. */
                    actor?: string;
                    /** @description The `next_cursor` of the page before. */
                    cursor?: string;
                    limit?: number;
                    /** @description Inclusive. */
                    since?: string;
                    /** @description Exclusive. */
                    until?: string;
                };
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["AuditLog"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/admin/sandboxes": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: {
            parameters: {
                query?: {
                    /** @description The `next_cursor` of the page before. */
                    cursor?: string;
                    limit?: number;
                    /** @description A comma-separated list of provisioning, ready, stopping, stopped, failed. */
                    state?: string;
                    /** @description Only those that this user provisioned. */
                    userId?: string;
                    /** @description Only those of this workspace. */
                    workspaceId?: string;
                };
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["SandboxList"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/admin/sandboxes/{sandbox_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        delete: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description Its id. */
                    sandbox_id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                204: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content?: never;
                };
            };
        };
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/admin/users": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: {
            parameters: {
                query?: {
                    /** @description The `next_cursor` of the page before. */
                    cursor?: string;
                    limit?: number;
                    /** @description Only the user with this name. */
                    username?: string;
                };
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["UserList"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/admin/users/{user_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    user_id: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["UpdateUser"];
                };
            };
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["User"];
                    };
                };
            };
        };
        post?: never;
        delete: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    user_id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                204: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content?: never;
                };
            };
        };
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/admin/users/{user_id}/api-tokens": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        delete: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    user_id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                204: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content?: never;
                };
            };
        };
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/admin/users/{user_id}/second-factor": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        delete: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    user_id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                204: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content?: never;
                };
            };
        };
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/admin/users/{user_id}/sessions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        delete: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    user_id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                204: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content?: never;
                };
            };
        };
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api-tokens": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: {
            parameters: {
                query?: {
                    /** @description The `next_cursor` of the page before. */
                    cursor?: string;
                    limit?: number;
                };
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["ApiTokenList"];
                    };
                };
            };
        };
        put?: never;
        post: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody: {
                content: {
                    /**
                     * @example {
                     *       "description": "continuous integration",
                     *       "role": "member",
                     *       "permissions": [
                     *         "provision",
                     *         "use"
                     *       ]
                     *     }
                     */
                    "application/json": components["schemas"]["CreateApiToken"];
                };
            };
            responses: {
                201: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["CreatedApiToken"];
                    };
                };
            };
        };
        delete: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                204: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content?: never;
                };
            };
        };
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api-tokens/{token}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        delete: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description The token itself or its id. */
                    token: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                204: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content?: never;
                };
            };
        };
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/auth/account": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Account"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["DeleteAccount"];
                };
            };
            responses: {
                204: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content?: never;
                };
            };
        };
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/auth/identities": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["IdentityList"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/auth/identities/{identity_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        delete: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    identity_id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                204: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content?: never;
                };
            };
        };
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/auth/login": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody: {
                content: {
                    /**
                     * @example {
                     *       "username": "ada@example.com",
                     *       "password": "a long passphrase"
                     *     }
                     */
                    "application/json": components["schemas"]["Login"];
                };
            };
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["SessionTokens"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/auth/logout": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["RefreshToken"];
                };
            };
            responses: {
                204: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content?: never;
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/auth/password": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["ChangePassword"];
                };
            };
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Success"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/auth/password/forgot": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["Username"];
                };
            };
            responses: {
                202: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Success"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/auth/password/reset": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "text/html": string;
                    };
                };
            };
        };
        put?: never;
        post: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["ResetPassword"];
                };
            };
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["PasswordReset"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/auth/refresh": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["RefreshToken"];
                };
            };
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["SessionTokens"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/auth/register": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["Register"];
                };
            };
            responses: {
                201: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Success"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/auth/resend-verification": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["Username"];
                };
            };
            responses: {
                202: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Success"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/auth/second-factor": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["SecondFactor"];
                    };
                };
            };
        };
        put?: never;
        post: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["CreateSecondFactor"];
                };
            };
            responses: {
                201: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["NewSecondFactor"];
                    };
                };
            };
        };
        delete: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["PasswordAndCode"];
                };
            };
            responses: {
                204: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content?: never;
                };
            };
        };
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/auth/second-factor/confirm": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["ConfirmSecondFactor"];
                };
            };
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["RecoveryCodes"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/auth/second-factor/recovery-codes": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["PasswordAndCode"];
                };
            };
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["RecoveryCodes"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/auth/sessions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: {
            parameters: {
                query?: {
                    /** @description The `next_cursor` of the page before. */
                    cursor?: string;
                    limit?: number;
                };
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["SessionList"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                204: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content?: never;
                };
            };
        };
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/auth/sessions/{session_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        delete: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    session_id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                204: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content?: never;
                };
            };
        };
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/auth/sso/{provider}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: {
            parameters: {
                query?: {
                    /** @description Where the browser goes in the end: exactly one of the configured addresses, the first unless given. */
                    redirectUri?: string;
                };
                header?: never;
                path: {
                    /** @description `google`, `microsoft` or `github`. */
                    provider: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                302: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content?: never;
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/auth/sso/{provider}/callback": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: {
            parameters: {
                query?: {
                    code?: string;
                    error?: string;
                    iss?: string;
                    state?: string;
                };
                header?: never;
                path: {
                    /** @description `google`, `microsoft` or `github`. */
                    provider: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                302: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content?: never;
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/auth/verify-email": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "text/html": string;
                    };
                };
            };
        };
        put?: never;
        post: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["VerifyEmail"];
                };
            };
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Success"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/docs": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "text/html": string;
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/docs/errors": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "text/html": string;
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/healthz": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Health"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/openapi.json": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": unknown;
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/readyz": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Readiness"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/registries": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: {
            parameters: {
                query?: {
                    /** @description The `next_cursor` of the page before. */
                    cursor?: string;
                    limit?: number;
                };
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["RegistryList"];
                    };
                };
            };
        };
        put?: never;
        post: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody: {
                content: {
                    /**
                     * @example {
                     *       "name": "ours",
                     *       "url": "registry.example.com",
                     *       "username": "robot",
                     *       "password": "…"
                     *     }
                     */
                    "application/json": components["schemas"]["CreateRegistry"];
                };
            };
            responses: {
                201: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Registry"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/registries/{registry_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    registry_id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Registry"];
                    };
                };
            };
        };
        put: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    registry_id: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["UpdateRegistry"];
                };
            };
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Registry"];
                    };
                };
            };
        };
        post?: never;
        delete: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    registry_id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                204: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content?: never;
                };
            };
        };
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/sandbox-images": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: {
            parameters: {
                query?: {
                    /** @description The `next_cursor` of the page before. */
                    cursor?: string;
                    enabledOnly?: boolean;
                    limit?: number;
                };
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["ImageList"];
                    };
                };
            };
        };
        put?: never;
        post: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody: {
                content: {
                    /**
                     * @example {
                     *       "name": "python",
                     *       "image": "docker.io/library/python:3.13-slim",
                     *       "memory_mb": 512,
                     *       "ttl_seconds": 3600
                     *     }
                     */
                    "application/json": components["schemas"]["CreateImage"];
                };
            };
            responses: {
                201: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Image"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/sandbox-images/{image_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    image_id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Image"];
                    };
                };
            };
        };
        put: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    image_id: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["UpdateImage"];
                };
            };
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Image"];
                    };
                };
            };
        };
        post?: never;
        delete: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    image_id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                204: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content?: never;
                };
            };
        };
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/sandbox/monitoring/{sandbox_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: {
            parameters: {
                query?: {
                    /** @description A comma-separated list of `logs` and `metrics`. */
                    include?: string;
                    /** @description The maximum number of log rows and of metric rows. The newest ones are returned; fewer when these come to more than 31 MiB. */
                    limit?: number;
                    /** @description Inclusive. One hour ago by default. */
                    since?: string;
                    /** @description Only log lines of this stream. */
                    stream?: "stdout" | "stderr";
                    /** @description Exclusive. Now by default. */
                    until?: string;
                };
                header?: never;
                path: {
                    /** @description Id or name. */
                    sandbox_id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Monitoring"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/sandbox/monitoring/{sandbox_id}/stream": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: {
            parameters: {
                query?: {
                    /** @description A comma-separated list of `logs` and `metrics`. */
                    include?: string;
                    /** @description Only log lines of this stream. */
                    stream?: "stdout" | "stderr";
                };
                header?: never;
                path: {
                    /** @description Id or name. */
                    sandbox_id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "text/event-stream": string;
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/sandboxes": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: {
            parameters: {
                query?: {
                    /** @description The `next_cursor` of the page before. */
                    cursor?: string;
                    /** @description `key:value`. Can be repeated; a sandbox has to match all of them. */
                    label?: string[];
                    limit?: number;
                    /** @description How the name begins. */
                    name?: string;
                    /** @description A comma-separated list of provisioning, ready, stopping, stopped, failed. */
                    state?: string;
                };
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["SandboxList"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/sandboxes/{sandbox_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description Id or name. */
                    sandbox_id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Sandbox"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description Id or name. */
                    sandbox_id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                204: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content?: never;
                };
            };
        };
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/sandboxes/{sandbox_id}/exec": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description Id or name. */
                    sandbox_id: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    /**
                     * @example {
                     *       "command": [
                     *         "sh",
                     *         "-c",
                     *         "echo hello"
                     *       ],
                     *       "timeout_seconds": 60
                     *     }
                     */
                    "application/json": components["schemas"]["ExecCommand"];
                };
            };
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["ExecResult"];
                        "text/event-stream": string;
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/sandboxes/{sandbox_id}/extend": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description Id or name. */
                    sandbox_id: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    /**
                     * @example {
                     *       "ttl_seconds": 3600
                     *     }
                     */
                    "application/json": components["schemas"]["ExtendSandbox"];
                };
            };
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Sandbox"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/sandboxes/{sandbox_id}/files": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: {
            parameters: {
                query?: {
                    /**
                     * @description A path inside of the sandbox, up to 4,095 bytes. A relative one starts at the image's folder. Links and `..` act as for a program inside.
                     * @example /tmp/report.txt
                     */
                    path?: string;
                    /** @description Instead of the path: its bytes in base64, for one that is not UTF-8. */
                    pathBase64?: string;
                };
                header?: never;
                path: {
                    /** @description Id or name. */
                    sandbox_id: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/octet-stream": string;
                };
            };
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/octet-stream": string;
                    };
                };
                206: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/octet-stream": string;
                    };
                };
            };
        };
        put: {
            parameters: {
                query?: {
                    /**
                     * @description The permission bits in octal digits.
                     * @example 0644
                     */
                    mode?: string;
                    /** @description Make the folders that are missing. Otherwise one that is missing is `not_found`. */
                    parents?: boolean;
                    /**
                     * @description A path inside of the sandbox, up to 4,095 bytes. A relative one starts at the image's folder. Links and `..` act as for a program inside.
                     * @example /tmp/report.txt
                     */
                    path?: string;
                    /** @description Instead of the path: its bytes in base64, for one that is not UTF-8. */
                    pathBase64?: string;
                };
                header?: never;
                path: {
                    /** @description Id or name. */
                    sandbox_id: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/octet-stream": string;
                };
            };
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Entry"];
                    };
                };
                201: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Entry"];
                    };
                };
            };
        };
        post?: never;
        delete: {
            parameters: {
                query?: {
                    /**
                     * @description A path inside of the sandbox, up to 4,095 bytes. A relative one starts at the image's folder. Links and `..` act as for a program inside.
                     * @example /tmp/report.txt
                     */
                    path?: string;
                    /** @description Instead of the path: its bytes in base64, for one that is not UTF-8. */
                    pathBase64?: string;
                    /** @description Also delete a folder that is not empty. */
                    recursive?: boolean;
                };
                header?: never;
                path: {
                    /** @description Id or name. */
                    sandbox_id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                204: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content?: never;
                };
            };
        };
        options?: never;
        head?: never;
        patch: {
            parameters: {
                query?: {
                    /**
                     * @description A path inside of the sandbox, up to 4,095 bytes. A relative one starts at the image's folder. Links and `..` act as for a program inside.
                     * @example /tmp/report.txt
                     */
                    path?: string;
                    /** @description Instead of the path: its bytes in base64, for one that is not UTF-8. */
                    pathBase64?: string;
                };
                header?: never;
                path: {
                    /** @description Id or name. */
                    sandbox_id: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    /**
                     * @example {
                     *       "mode": "0755"
                     *     }
                     */
                    "application/json": components["schemas"]["FileMode"];
                };
            };
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Entry"];
                    };
                };
            };
        };
        trace?: never;
    };
    "/sandboxes/{sandbox_id}/files/archive": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: {
            parameters: {
                query?: {
                    /**
                     * @description A path inside of the sandbox, up to 4,095 bytes. A relative one starts at the image's folder. Links and `..` act as for a program inside.
                     * @example /tmp/report.txt
                     */
                    path?: string;
                    /** @description Instead of the path: its bytes in base64, for one that is not UTF-8. */
                    pathBase64?: string;
                };
                header?: never;
                path: {
                    /** @description Id or name. */
                    sandbox_id: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/octet-stream": string;
                };
            };
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/x-tar": string;
                    };
                };
            };
        };
        put: {
            parameters: {
                query?: {
                    /**
                     * @description A path inside of the sandbox, up to 4,095 bytes. A relative one starts at the image's folder. Links and `..` act as for a program inside.
                     * @example /tmp/report.txt
                     */
                    path?: string;
                    /** @description Instead of the path: its bytes in base64, for one that is not UTF-8. */
                    pathBase64?: string;
                };
                header?: never;
                path: {
                    /** @description Id or name. */
                    sandbox_id: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/octet-stream": string;
                };
            };
            responses: {
                204: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content?: never;
                };
            };
        };
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/sandboxes/{sandbox_id}/files/directories": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description Id or name. */
                    sandbox_id: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    /**
                     * @example {
                     *       "path": "/tmp/results",
                     *       "parents": true
                     *     }
                     */
                    "application/json": components["schemas"]["NewDirectory"];
                };
            };
            responses: {
                201: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Entry"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/sandboxes/{sandbox_id}/files/entries": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: {
            parameters: {
                query?: {
                    /** @description The `next_cursor` of the page before. */
                    cursor?: string;
                    /** @description Levels below the folder. */
                    depth?: number;
                    limit?: number;
                    /**
                     * @description A path inside of the sandbox, up to 4,095 bytes. A relative one starts at the image's folder. Links and `..` act as for a program inside.
                     * @example /tmp/report.txt
                     */
                    path?: string;
                    /** @description Instead of the path: its bytes in base64, for one that is not UTF-8. */
                    pathBase64?: string;
                };
                header?: never;
                path: {
                    /** @description Id or name. */
                    sandbox_id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["EntryList"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/sandboxes/{sandbox_id}/files/entry": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: {
            parameters: {
                query?: {
                    /** @description Describe what a link leads to rather than the link. */
                    follow?: boolean;
                    /**
                     * @description A path inside of the sandbox, up to 4,095 bytes. A relative one starts at the image's folder. Links and `..` act as for a program inside.
                     * @example /tmp/report.txt
                     */
                    path?: string;
                    /** @description Instead of the path: its bytes in base64, for one that is not UTF-8. */
                    pathBase64?: string;
                };
                header?: never;
                path: {
                    /** @description Id or name. */
                    sandbox_id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Entry"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/sandboxes/{sandbox_id}/files/move": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description Id or name. */
                    sandbox_id: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    /**
                     * @example {
                     *       "from": "/tmp/report.txt",
                     *       "to": "/tmp/results/report.txt"
                     *     }
                     */
                    "application/json": components["schemas"]["Move"];
                };
            };
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Entry"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/sandboxes/{sandbox_id}/files/watch": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: {
            parameters: {
                query?: {
                    /**
                     * @description A path inside of the sandbox, up to 4,095 bytes. A relative one starts at the image's folder. Links and `..` act as for a program inside.
                     * @example /tmp/report.txt
                     */
                    path?: string;
                    /** @description Instead of the path: its bytes in base64, for one that is not UTF-8. */
                    pathBase64?: string;
                    /** @description Also what is in folders below, new ones included. */
                    recursive?: boolean;
                };
                header?: never;
                path: {
                    /** @description Id or name. */
                    sandbox_id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "text/event-stream": string;
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/sandboxes/{sandbox_id}/listening": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description Id or name. */
                    sandbox_id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["ListeningPortList"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/sandboxes/{sandbox_id}/ports": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description Id or name. */
                    sandbox_id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["PreviewList"];
                    };
                };
            };
        };
        put?: never;
        post: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description Id or name. */
                    sandbox_id: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    /**
                     * @example {
                     *       "port": 3000
                     *     }
                     */
                    "application/json": components["schemas"]["CreatePreview"];
                };
            };
            responses: {
                201: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["CreatedPreview"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/sandboxes/{sandbox_id}/ports/{port}/http/{rest}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /**
                     * @description 1 to 65535.
                     * @example 3000
                     */
                    port: string;
                    /** @description The path on the server, to which the query belongs too. */
                    rest: string;
                    /** @description Id or name. */
                    sandbox_id: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/octet-stream": string;
                };
            };
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "*/*": string;
                    };
                };
            };
        };
        put: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /**
                     * @description 1 to 65535.
                     * @example 3000
                     */
                    port: string;
                    /** @description The path on the server, to which the query belongs too. */
                    rest: string;
                    /** @description Id or name. */
                    sandbox_id: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/octet-stream": string;
                };
            };
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "*/*": string;
                    };
                };
            };
        };
        post: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /**
                     * @description 1 to 65535.
                     * @example 3000
                     */
                    port: string;
                    /** @description The path on the server, to which the query belongs too. */
                    rest: string;
                    /** @description Id or name. */
                    sandbox_id: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/octet-stream": string;
                };
            };
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "*/*": string;
                    };
                };
            };
        };
        delete: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /**
                     * @description 1 to 65535.
                     * @example 3000
                     */
                    port: string;
                    /** @description The path on the server, to which the query belongs too. */
                    rest: string;
                    /** @description Id or name. */
                    sandbox_id: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/octet-stream": string;
                };
            };
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "*/*": string;
                    };
                };
            };
        };
        options: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /**
                     * @description 1 to 65535.
                     * @example 3000
                     */
                    port: string;
                    /** @description The path on the server, to which the query belongs too. */
                    rest: string;
                    /** @description Id or name. */
                    sandbox_id: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/octet-stream": string;
                };
            };
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "*/*": string;
                    };
                };
            };
        };
        head?: never;
        patch: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /**
                     * @description 1 to 65535.
                     * @example 3000
                     */
                    port: string;
                    /** @description The path on the server, to which the query belongs too. */
                    rest: string;
                    /** @description Id or name. */
                    sandbox_id: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/octet-stream": string;
                };
            };
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "*/*": string;
                    };
                };
            };
        };
        trace?: never;
    };
    "/sandboxes/{sandbox_id}/ports/{port}/tcp": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /**
                     * @description 1 to 65535.
                     * @example 3000
                     */
                    port: string;
                    /** @description Id or name. */
                    sandbox_id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                101: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": unknown;
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/sandboxes/{sandbox_id}/ports/{preview_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    preview_id: string;
                    /** @description Id or name. */
                    sandbox_id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Preview"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    preview_id: string;
                    /** @description Id or name. */
                    sandbox_id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                204: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content?: never;
                };
            };
        };
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/sandboxes/{sandbox_id}/ports/{preview_id}/links": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    preview_id: string;
                    /** @description Id or name. */
                    sandbox_id: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["CreatePreviewLink"];
                };
            };
            responses: {
                201: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["PreviewLink"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/sandboxes/{sandbox_id}/processes": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: {
            parameters: {
                query?: {
                    /** @description A comma-separated list of running, exited, lost. */
                    state?: string;
                    tag?: string;
                };
                header?: never;
                path: {
                    /** @description Id or name. */
                    sandbox_id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["ProcessList"];
                    };
                };
            };
        };
        put?: never;
        post: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description Id or name. */
                    sandbox_id: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    /**
                     * @example {
                     *       "command": [
                     *         "bash"
                     *       ],
                     *       "pty": {
                     *         "cols": 80,
                     *         "rows": 24
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["StartProcess"];
                };
            };
            responses: {
                201: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Process"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/sandboxes/{sandbox_id}/processes/{process_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description The `id` of the process. */
                    process_id: string;
                    /** @description Id or name. */
                    sandbox_id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Process"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description The `id` of the process. */
                    process_id: string;
                    /** @description Id or name. */
                    sandbox_id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                204: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content?: never;
                };
            };
        };
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/sandboxes/{sandbox_id}/processes/{process_id}/attach": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: {
            parameters: {
                query?: {
                    /** @description Bytes of output to skip. By default all that is kept comes. */
                    after?: number;
                    /** @description Instead of a bearer token, which browsers can't send here. */
                    ticket?: string;
                };
                header?: never;
                path: {
                    /** @description The `id` of the process. */
                    process_id: string;
                    /** @description Id or name. */
                    sandbox_id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                101: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": unknown;
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/sandboxes/{sandbox_id}/processes/{process_id}/output": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: {
            parameters: {
                query?: {
                    /** @description Bytes of output to skip. By default all that is kept comes. */
                    after?: number;
                    /** @description Of all output. By default output is `utf8`, and `base64` where it is no valid UTF-8, so nothing is lost. */
                    encoding?: components["schemas"]["Encoding"];
                    /** @description How long to wait for output; 0 by default. */
                    waitSeconds?: number;
                };
                header?: never;
                path: {
                    /** @description The `id` of the process. */
                    process_id: string;
                    /** @description Id or name. */
                    sandbox_id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["ProcessOutput"];
                        "text/event-stream": string;
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/sandboxes/{sandbox_id}/processes/{process_id}/pty": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description The `id` of the process. */
                    process_id: string;
                    /** @description Id or name. */
                    sandbox_id: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["Terminal"];
                };
            };
            responses: {
                204: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content?: never;
                };
            };
        };
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/sandboxes/{sandbox_id}/processes/{process_id}/signal": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description The `id` of the process. */
                    process_id: string;
                    /** @description Id or name. */
                    sandbox_id: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    /**
                     * @example {
                     *       "signal": "SIGTERM"
                     *     }
                     */
                    "application/json": components["schemas"]["SignalProcess"];
                };
            };
            responses: {
                204: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content?: never;
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/sandboxes/{sandbox_id}/processes/{process_id}/stdin": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: {
            parameters: {
                query?: {
                    /** @description The input ends after these bytes. In a terminal: Ctrl-D is typed. */
                    eof?: boolean;
                    /** @description Bytes of input before these. What was taken before is not written again. By default after all that was taken. */
                    offset?: number;
                };
                header?: never;
                path: {
                    /** @description The `id` of the process. */
                    process_id: string;
                    /** @description Id or name. */
                    sandbox_id: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/octet-stream": string;
                };
            };
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["TakenInput"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/sandboxes/{sandbox_id}/processes/{process_id}/tickets": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description The `id` of the process. */
                    process_id: string;
                    /** @description Id or name. */
                    sandbox_id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                201: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Ticket"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/sandboxes/{sandbox_id}/processes/{process_id}/wait": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description The `id` of the process. */
                    process_id: string;
                    /** @description Id or name. */
                    sandbox_id: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    /**
                     * @example {
                     *       "timeout_seconds": 60
                     *     }
                     */
                    "application/json": components["schemas"]["WaitForProcess"];
                };
            };
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Process"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/sandboxes/provision": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody: {
                content: {
                    /**
                     * @example {
                     *       "image": "python",
                     *       "name": "first",
                     *       "labels": {
                     *         "purpose": "tests"
                     *       },
                     *       "ttl_seconds": 3600
                     *     }
                     */
                    "application/json": components["schemas"]["ProvisionSandbox"];
                };
            };
            responses: {
                201: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Sandbox"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/sandboxes/wait": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody: {
                content: {
                    /**
                     * @example {
                     *       "sandbox_id": "first",
                     *       "timeout_seconds": 60
                     *     }
                     */
                    "application/json": components["schemas"]["WaitForSandbox"];
                };
            };
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Sandbox"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/workspaces": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: {
            parameters: {
                query?: {
                    /** @description The `next_cursor` of the page before. */
                    cursor?: string;
                    limit?: number;
                };
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["WorkspaceList"];
                    };
                };
            };
        };
        put?: never;
        post: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["WorkspaceFields"];
                };
            };
            responses: {
                201: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Workspace"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/workspaces/{workspace_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    workspace_id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Workspace"];
                    };
                };
            };
        };
        put: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    workspace_id: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["WorkspaceFields"];
                };
            };
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Workspace"];
                    };
                };
            };
        };
        post?: never;
        delete: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    workspace_id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                204: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content?: never;
                };
            };
        };
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/workspaces/{workspace_id}/audit-log": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: {
            parameters: {
                query?: {
                    action?: "user.register" | "user.verify" | "user.link" | "user.unlink" | "user.sign_in" | "user.change_password" | "user.reset_password" | "user.read" | "user.list" | "user.disable" | "user.enable" | "user.make_operator" | "user.delete" | "identity.list" | "second_factor.read" | "second_factor.enable" | "second_factor.remove" | "second_factor.use_recovery_code" | "second_factor.replace_recovery_codes" | "session.list" | "session.end" | "session.end_all" | "api_token.create" | "api_token.list" | "api_token.revoke" | "api_token.revoke_all" | "workspace.create" | "workspace.list" | "workspace.read" | "workspace.update" | "workspace.take_over" | "workspace.delete" | "member.add" | "member.list" | "member.update" | "member.remove" | "image.create" | "image.list" | "image.read" | "image.update" | "image.delete" | "registry.create" | "registry.list" | "registry.read" | "registry.update" | "registry.delete" | "sandbox.provision" | "sandbox.list" | "sandbox.read" | "sandbox.read_logs" | "sandbox.extend" | "sandbox.stop" | "sandbox.exec" | "process.start" | "process.list" | "process.read" | "process.write" | "process.signal" | "process.end" | "file.read" | "file.list" | "file.write" | "file.move" | "file.delete" | "file.archive" | "port.list" | "port.connect" | "preview.create" | "preview.list" | "preview.read" | "preview.revoke" | "preview.link" | "audit_log.read";
                    /** @description The id of the user who did it. */
                    actor?: string;
                    /** @description The `next_cursor` of the page before. */
                    cursor?: string;
                    limit?: number;
                    /** @description Inclusive. */
                    since?: string;
                    /** @description Exclusive. */
                    until?: string;
                };
                header?: never;
                path: {
                    workspace_id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["AuditLog"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/workspaces/{workspace_id}/members": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: {
            parameters: {
                query?: {
                    /** @description The `next_cursor` of the page before. */
                    cursor?: string;
                    limit?: number;
                };
                header?: never;
                path: {
                    workspace_id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["MemberList"];
                    };
                };
            };
        };
        put?: never;
        post: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    workspace_id: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["AddMember"];
                };
            };
            responses: {
                201: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Member"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/workspaces/{workspace_id}/members/{user_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    user_id: string;
                    workspace_id: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["UpdateMember"];
                };
            };
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Member"];
                    };
                };
            };
        };
        post?: never;
        delete: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    user_id: string;
                    workspace_id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                204: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content?: never;
                };
            };
        };
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        Account: {
            /** Format: date-time */
            readonly createdAt: string;
            /**
             * @description What the request was made with.
             * @enum {string}
             */
            credential: "session" | "api_token";
            hasSecondFactor: boolean;
            readonly id: string;
            /** @description Whether the account is an operator's. */
            isOperator: boolean;
            /** @description Limits the token to part of what its role allows: `read` allows reading records, logs and the audit log; `provision` allows provisioning, waiting for, extending and stopping sandboxes; `use` allows commands and files in them; `manage` allows all else. None includes another. Without permissions the token may do all that its role allows. */
            permissions: components["schemas"]["Permission"][] | null;
            /** @description The highest role that the token has in any workspace, whatever your own. A token with a role never has an operator's rights. */
            role: components["schemas"]["Role"] | null;
            username: string;
            /** @description The workspace that the API token is limited to. Null: it has no such limit. */
            workspaceId: string | null;
        };
        AddMember: {
            role: components["schemas"]["Role"];
            username: string;
        };
        ApiToken: {
            /** Format: date-time */
            readonly createdAt: string;
            description: string;
            /** Format: date-time */
            readonly expiresAt: string | null;
            readonly id: string;
            /** Format: date-time */
            readonly lastUsedAt: string | null;
            /** @description Limits the token to part of what its role allows: `read` allows reading records, logs and the audit log; `provision` allows provisioning, waiting for, extending and stopping sandboxes; `use` allows commands and files in them; `manage` allows all else. None includes another. Without permissions the token may do all that its role allows. */
            permissions: components["schemas"]["Permission"][] | null;
            /** @description The highest role that the token has in any workspace, whatever your own. A token with a role never has an operator's rights. */
            role: components["schemas"]["Role"] | null;
            tokenHint: string;
            workspaceId: string | null;
        };
        ApiTokenList: {
            apiTokens: components["schemas"]["ApiToken"][];
            /** @description Send it as `cursor` to get the next page; null on the last page. */
            nextCursor: string | null;
        };
        AuditActor: {
            readonly userId: string;
        };
        AuditCredential: {
            readonly id: string;
            /** @enum {string} */
            type: "session" | "api_token";
        };
        AuditEntry: {
            action: string;
            /** @description Null when nobody was signed in, or the platform acted by itself. */
            actor: components["schemas"]["AuditActor"] | null;
            /** @description The client's address. Null when the counted requests came from several. */
            address: string | null;
            /** Format: date-time */
            readonly at: string;
            /** @description The number of requests. Refused ones that are like a recorded one are counted with it for a while, and so are uses of a sandbox beyond 20 a minute. */
            count: number;
            /** @description That of the first request, if the entry stands for several. */
            credential: components["schemas"]["AuditCredential"] | null;
            readonly id: string;
            /** @description `success`, the error code of a refused request, or `upstream_error` if nobody knows whether it was done. */
            outcome: string;
            /** @description The id of the first request, if the entry stands for several. */
            requestId: string | null;
            target: components["schemas"]["AuditTarget"] | null;
            workspaceId: string | null;
        };
        AuditLog: {
            entries: components["schemas"]["AuditEntry"][];
            /** @description Send it as `cursor` to get the next page; null on the last page. */
            nextCursor: string | null;
        };
        AuditTarget: {
            id: string;
            /** @description The path in the sandbox, of which 1,000 characters are kept. */
            path?: string;
            /** @description That port. */
            port?: string;
            /** @description The preview of one of the sandbox's ports. */
            previewId?: string;
            /** @description The process in the sandbox. */
            processId?: string;
            /** @description The name of its program; of a command that is a string, `sh`. */
            program?: string;
            /** @description The member's new role. */
            role?: string;
            /** @description Where it was moved to. */
            to?: string;
            type: string;
        };
        ChangePassword: {
            currentPassword: string;
            /** @description One that is common or easy to guess is refused. */
            password: string;
            /**
             * @description Whether your API tokens are revoked too.
             * @default false
             */
            revokeApiTokens?: boolean;
        };
        ConfirmSecondFactor: {
            /** @description A code that your authenticator app shows, or a recovery code; each works once. */
            otp: string;
        };
        CreateApiToken: {
            description: string;
            /** Format: date-time */
            expiresAt?: string;
            /** @description Limits the token to part of what its role allows: `read` allows reading records, logs and the audit log; `provision` allows provisioning, waiting for, extending and stopping sandboxes; `use` allows commands and files in them; `manage` allows all else. None includes another. Without permissions the token may do all that its role allows. */
            permissions?: components["schemas"]["Permission"][];
            /** @description The highest role that the token has in any workspace, whatever your own. A token with a role never has an operator's rights. */
            role?: components["schemas"]["Role"];
            /** @description The only workspace in which the token works. Such a token never has operator rights. */
            workspaceId?: string;
        };
        CreatedApiToken: {
            /** Format: date-time */
            readonly createdAt: string;
            description: string;
            /** Format: date-time */
            readonly expiresAt: string | null;
            readonly id: string;
            /** @description Limits the token to part of what its role allows: `read` allows reading records, logs and the audit log; `provision` allows provisioning, waiting for, extending and stopping sandboxes; `use` allows commands and files in them; `manage` allows all else. None includes another. Without permissions the token may do all that its role allows. */
            permissions: components["schemas"]["Permission"][] | null;
            /** @description The highest role that the token has in any workspace, whatever your own. A token with a role never has an operator's rights. */
            role: components["schemas"]["Role"] | null;
            /** @description Shown only in this response. */
            token: string;
            workspaceId: string | null;
        };
        CreatedPreview: {
            /** Format: date-time */
            readonly createdAt: string;
            readonly createdBy: string;
            /** Format: date-time */
            readonly expiresAt: string;
            /** @description The Host header that the server gets: the preview's own host, or `localhost:<port>`. */
            hostHeader: components["schemas"]["HostHeader"];
            readonly id: string;
            /** @description Of the server in the sandbox. */
            port: number;
            /** @description Whether it opens without a token. */
            public: boolean;
            /** @description Opens it, as `X-Sandgate-Token`. Shown only in this response. */
            token: string;
            /** Format: uri */
            url: string;
        };
        CreateImage: {
            description?: string | null;
            /** @description True by default. */
            enabled?: boolean;
            image: string;
            /** @description Makes it a global default. For operators only. */
            isDefault?: boolean;
            /** @description In MiB. 1024 by default. */
            memoryMb?: number;
            name: string;
            /** @description A sandbox is ready once `GET /` on this port answers 200 to 399 within 2 s. A redirect counts as such an answer. On Kubernetes a redirect to the same host is followed, and the last answer counts. Without a port, a sandbox is ready once a program can run in it. */
            readinessPort?: number | null;
            /** @description The registry credential to pull with. */
            registryId?: string | null;
            /** @description By default the tag in `image`, otherwise `latest`. */
            tag?: string;
            ttlSeconds?: number | null;
        };
        CreatePreview: {
            /** @description The Host header that the server gets: the preview's own host, or `localhost:<port>`. */
            hostHeader?: components["schemas"]["HostHeader"];
            /** @description Of the server in the sandbox. */
            port: number;
            /** @description Whether it opens without a token. */
            public?: boolean;
            /** @description How long it lives, at most as long as the sandbox. 3,600 by default. */
            ttlSeconds?: number;
        };
        CreatePreviewLink: {
            /** @description How long it may be opened, at most as long as the preview lives. 300 by default. */
            ttlSeconds?: number;
        };
        CreateRegistry: {
            name: string;
            password: string;
            /** @description `[http(s)://]host[:port]` */
            url: string;
            username: string;
        };
        CreateSecondFactor: {
            /** @description Required if the account has a password. Otherwise you must have signed in within the last 5 minutes. */
            password?: string;
        };
        DeleteAccount: {
            /** @description Required if the account has a password. Otherwise you must have signed in within the last 5 minutes. */
            password?: string;
        };
        /** @enum {string} */
        Encoding: "utf8" | "base64";
        Entry: {
            gid: number;
            group: string | null;
            /** @description The permission bits in octal digits. */
            mode: string;
            /** Format: date-time */
            readonly modifiedAt: string;
            /** @description What isn't UTF-8 in it is U+FFFD. */
            name: string;
            /** @description The name's bytes in base64, if it isn't UTF-8. */
            nameBase64?: string;
            /** @description What isn't UTF-8 in it is U+FFFD. */
            path: string;
            /** @description The path's bytes in base64, if it isn't UTF-8. */
            pathBase64?: string;
            size: number;
            symlinkTarget: string | null;
            type: components["schemas"]["EntryType"];
            uid: number;
            user: string | null;
        };
        EntryList: {
            readonly entries: components["schemas"]["Entry"][];
            /** @description Send it as `cursor` to get the next page; null on the last page. */
            nextCursor: string | null;
        };
        /** @enum {string} */
        EntryType: "file" | "directory" | "symlink" | "other";
        /** @description The body of every error response. Branch on `error.code`. */
        Error: {
            /**
             * @deprecated
             * @description A copy of `error.message`.
             */
            detail?: string | null;
            error: components["schemas"]["ErrorBody"];
        };
        ErrorBody: {
            /** @enum {string} */
            code: "unauthenticated" | "invalid_token" | "invalid_credentials" | "email_not_verified" | "forbidden" | "insufficient_role" | "workspace_required" | "workspace_forbidden" | "workspace_not_found" | "member_not_found" | "sandbox_not_found" | "sandbox_name_conflict" | "sandbox_not_ready" | "provisioning_failed" | "image_not_found" | "image_disabled" | "image_immutable" | "registry_not_found" | "api_key_not_found" | "validation_error" | "not_found" | "conflict" | "rate_limited" | "internal_error" | "upstream_error";
            /** @description One item for each invalid field. `validation_error` has it, and so has `invalid_credentials` about a code of the second factor. */
            details?: components["schemas"]["ErrorDetail"][] | null;
            /** @description The explanation of the code. */
            docsUrl?: string | null;
            /** @description What is likely to help. */
            hint?: string | null;
            message: string;
            /** @description Also in the X-Request-Id header. */
            requestId?: string | null;
            /**
             * @description Whether an identical request may succeed later.
             * @default false
             */
            retryable?: boolean;
        };
        ErrorDetail: {
            /** @description A dotted path, for example `body.memory_mb`. */
            field?: string | null;
            issue: string;
        };
        ExecCommand: {
            /** @description The program and its arguments, or a text for `/bin/sh -c`. */
            command: string | string[];
            /** @description The image's folder by default, to which it is relative. */
            cwd?: string;
            /** @description Of `stdin` and of the output; `utf8` by default. */
            encoding?: components["schemas"]["Encoding"];
            /** @description Added to the sandbox's environment. */
            env?: {
                [key: string]: string;
            };
            /** @description Of each of stdout and stderr so many first bytes are sent: 1 MiB by default, all as events. */
            maxOutputBytes?: number;
            /**
             * @description What happens to the command when the client leaves: `kill` by default.
             * @enum {string}
             */
            onDisconnect?: "kill" | "continue";
            /** @description What it reads, 512 KiB at most, in `encoding`. */
            stdin?: string;
            /** @description To find it by. */
            tag?: string;
            /** @description 60 by default. Then the whole tree gets SIGTERM, and SIGKILL 2 s later. 240 at most unless events are asked for. */
            timeoutSeconds?: number;
            /** @description A name, `uid` or `uid:gid`. The image's user by default. */
            user?: string;
        };
        ExecResult: {
            command: string[] | string;
            cwd: string;
            /** @description Of the output. */
            encoding: components["schemas"]["Encoding"];
            /** Format: date-time */
            readonly endedAt: string | null;
            /** @description 128 plus the signal's number for one that a signal ended. Null while it runs. */
            readonly exitCode: number | null;
            readonly id: string;
            /** @description Bytes of output so far. */
            readonly outputBytes: number;
            /** @description In the sandbox. Null when the program could not be started. */
            readonly pid: number | null;
            pty: components["schemas"]["Terminal"] | null;
            /** @description Output before this byte is gone. */
            readonly retainedFrom: number;
            /** @description The name of the signal that ended it. */
            readonly signal: string | null;
            /** Format: date-time */
            readonly startedAt: string;
            /** @description `lost`: somebody in the sandbox killed what watched it, so how it ended is unknown. */
            readonly state: components["schemas"]["ProcessState"];
            stderr: string;
            stderrTruncated: boolean;
            stdinOpen: boolean;
            stdout: string;
            stdoutTruncated: boolean;
            tag: string | null;
            readonly timedOut: boolean;
            /** @description Null: the image's. */
            user: string | null;
        };
        ExtendSandbox: {
            /** @description Allow an earlier end than before. False by default. */
            shorten?: boolean;
            /** @description Seconds from now. */
            ttlSeconds: number;
        };
        FileMode: {
            /** @description The permission bits in octal digits. */
            mode: string;
        };
        Health: {
            status: string;
        };
        /** @enum {string} */
        HostHeader: "preview" | "localhost";
        Identity: {
            readonly id: string;
            /** Format: date-time */
            readonly lastUsedAt: string | null;
            /** Format: date-time */
            readonly linkedAt: string;
            /** @description `google`, `microsoft` or `github`. */
            provider: string;
            /** @description The address that the provider verified last. */
            username: string;
        };
        IdentityList: {
            identities: components["schemas"]["Identity"][];
        };
        Image: {
            /** Format: date-time */
            readonly createdAt: string;
            description: string | null;
            enabled: boolean;
            readonly id: string;
            image: string;
            isDefault: boolean;
            memoryMb: number;
            name: string;
            readinessPort: number | null;
            registryId: string | null;
            readonly registryName: string | null;
            tag: string;
            ttlSeconds: number | null;
            /** Format: date-time */
            readonly updatedAt: string;
            readonly workspaceId: string | null;
        };
        ImageList: {
            images: components["schemas"]["Image"][];
            /** @description Send it as `cursor` to get the next page; null on the last page. */
            nextCursor: string | null;
            /** @description The number of images on all pages together. */
            total: number;
        };
        /** @description The 422 response of DELETE /workspaces/{workspace_id}. */
        ListedErrors: {
            detail: {
                loc: (string | number)[];
                msg: string;
                type: string;
            }[];
        };
        ListeningPort: {
            /** @description The address that it listens on. */
            address: string;
            port: number;
            /** @description The `id` of the process that it belongs to, if it is one of ours. */
            processId: string | null;
        };
        ListeningPortList: {
            readonly ports: components["schemas"]["ListeningPort"][];
        };
        LogEntry: {
            log: string;
            /** @enum {string} */
            stream: "stdout" | "stderr";
            /** Format: date-time */
            readonly timestamp: string;
        };
        Login: {
            /** @description Needed in an account with a second factor. A code that your authenticator app shows, or a recovery code; each works once. */
            otp?: string;
            password: string;
            /** @description Required only where reCAPTCHA is set up. Each request needs a new one. */
            recaptchaToken?: string;
            username: string;
        };
        Member: {
            /** Format: date-time */
            readonly joinedAt: string;
            role: components["schemas"]["Role"];
            readonly userId: string;
            readonly username: string;
        };
        MemberList: {
            members: components["schemas"]["Member"][];
            /** @description Send it as `cursor` to get the next page; null on the last page. */
            nextCursor: string | null;
        };
        MetricPoint: {
            /** @description Cumulative CPU time in seconds. */
            cpuUsage: number;
            /** @description The working set in bytes. */
            memoryUsage: number;
            /** Format: date-time */
            readonly timestamp: string;
        };
        Monitoring: {
            logs: components["schemas"]["LogEntry"][];
            metrics: components["schemas"]["MetricPoint"][];
            readonly sandboxId: string;
            sandboxName: string;
        };
        Move: {
            /** @description A path inside of the sandbox, up to 4,095 bytes. A relative one starts at the image's folder. Links and `..` act as for a program inside. */
            from?: string;
            /** @description Instead of the path: its bytes in base64, for one that is not UTF-8. */
            fromBase64?: string;
            /** @description Replace what is at `to`. False by default. */
            overwrite?: boolean;
            /** @description A path inside of the sandbox, up to 4,095 bytes. A relative one starts at the image's folder. Links and `..` act as for a program inside. */
            to?: string;
            /** @description Instead of the path: its bytes in base64, for one that is not UTF-8. */
            toBase64?: string;
        };
        NewDirectory: {
            /** @description The permission bits in octal digits. */
            mode?: string;
            /** @description Also make its parents; a folder that is there is no error. False by default. */
            parents?: boolean;
            /** @description A path inside of the sandbox, up to 4,095 bytes. A relative one starts at the image's folder. Links and `..` act as for a program inside. */
            path?: string;
            /** @description Instead of the path: its bytes in base64, for one that is not UTF-8. */
            pathBase64?: string;
        };
        NewSecondFactor: {
            /** @description In base32, to be typed into an authenticator app. */
            secret: string;
            /** @description The same as an `otpauth:` address, to be shown as a QR code. */
            uri: string;
        };
        OutputEvent: {
            /** @description Of a gap: so many are gone. */
            bytes?: number;
            data?: string;
            /** @description Of `data`. */
            encoding?: components["schemas"]["Encoding"];
            /** @description Bytes of output up to and with this one. */
            id: number;
            /** @enum {string} */
            stream?: "stdout" | "stderr" | "pty";
            /** @enum {string} */
            type: "output" | "gap";
        };
        PasswordAndCode: {
            /** @description A code that your authenticator app shows, or a recovery code; each works once. */
            otp: string;
            /** @description Required if the account has a password. Otherwise you must have signed in within the last 5 minutes. */
            password?: string;
        };
        PasswordReset: {
            /** @description The accounts at providers that can still sign in to yours. */
            identities: components["schemas"]["Identity"][];
            success: boolean;
        };
        /** @enum {string} */
        Permission: "read" | "provision" | "use" | "manage";
        Preview: {
            /** Format: date-time */
            readonly createdAt: string;
            readonly createdBy: string;
            /** Format: date-time */
            readonly expiresAt: string;
            /** @description The Host header that the server gets: the preview's own host, or `localhost:<port>`. */
            hostHeader: components["schemas"]["HostHeader"];
            readonly id: string;
            /** @description Of the server in the sandbox. */
            port: number;
            /** @description Whether it opens without a token. */
            public: boolean;
            /** Format: uri */
            url: string;
        };
        PreviewLink: {
            /** Format: date-time */
            readonly expiresAt: string;
            /**
             * Format: uri
             * @description Opens the preview once, in a browser.
             */
            url: string;
        };
        PreviewList: {
            previews: components["schemas"]["Preview"][];
        };
        Process: {
            command: string[] | string;
            cwd: string;
            /** Format: date-time */
            readonly endedAt: string | null;
            /** @description 128 plus the signal's number for one that a signal ended. Null while it runs. */
            readonly exitCode: number | null;
            readonly id: string;
            /** @description Bytes of output so far. */
            readonly outputBytes: number;
            /** @description In the sandbox. Null when the program could not be started. */
            readonly pid: number | null;
            pty: components["schemas"]["Terminal"] | null;
            /** @description Output before this byte is gone. */
            readonly retainedFrom: number;
            /** @description The name of the signal that ended it. */
            readonly signal: string | null;
            /** Format: date-time */
            readonly startedAt: string;
            /** @description `lost`: somebody in the sandbox killed what watched it, so how it ended is unknown. */
            readonly state: components["schemas"]["ProcessState"];
            stdinOpen: boolean;
            tag: string | null;
            readonly timedOut: boolean;
            /** @description Null: the image's. */
            user: string | null;
        };
        ProcessList: {
            processes: components["schemas"]["Process"][];
        };
        ProcessOutput: {
            events: components["schemas"]["OutputEvent"][];
            /** @description `after` of the next request. */
            next: number;
            process: components["schemas"]["Process"];
        };
        /** @enum {string} */
        ProcessState: "running" | "exited" | "lost";
        ProvisionSandbox: {
            /** @description The program and its arguments, which run instead of the image's entrypoint and command. 64 KiB together. */
            command?: string[];
            /** @description Environment variables besides the image's, 64 KiB together. Their values are never shown again, and are stored encrypted until the sandbox has ended. */
            env?: {
                [key: string]: string;
            };
            /** @description It ends as `stopped` with the reason `idle` when for so many seconds nobody has used it: no command of the API runs in it, no file is read or written, and no terminal is connected. Reading its logs doesn't count. By default it may be idle. */
            idleTimeoutSeconds?: number;
            /** @description The name of an image as the list shows it, its name and tag as `name:tag`, or its id. The workspace's own image goes before a global default. */
            image?: string;
            /** @description Or `image`. Exactly one of them. */
            imageId?: string;
            /** @description Lists are filtered by them, as `key:value`; so a key has no colon. */
            labels?: {
                [key: string]: string;
            };
            /** @description Generated by default. Must not look like a UUID. */
            name?: string;
            /** @description Seconds from its start after which it ends. By default the image's, and at most that. */
            ttlSeconds?: number | null;
        };
        PullProgress: {
            downloadedBytes: number;
            totalBytes: number;
        };
        Readiness: {
            dependencies: {
                [key: string]: string;
            };
            status: string;
        };
        RecoveryCodes: {
            /** @description Each works once in place of a code. Shown only here. */
            recoveryCodes: string[];
        };
        RefreshToken: {
            refreshToken: string;
        };
        Register: {
            /** @description One that is common or easy to guess is refused. */
            password: string;
            /** @description Required only where reCAPTCHA is set up. Each request needs a new one. */
            recaptchaToken?: string;
            /** Format: email */
            username: string;
        };
        Registry: {
            /** Format: date-time */
            readonly createdAt: string;
            readonly id: string;
            name: string;
            /** Format: date-time */
            readonly updatedAt: string;
            url: string;
            username: string;
            readonly workspaceId: string;
        };
        RegistryList: {
            /** @description Send it as `cursor` to get the next page; null on the last page. */
            nextCursor: string | null;
            registries: components["schemas"]["Registry"][];
        };
        ResetPassword: {
            /** @description One that is common or easy to guess is refused. */
            password: string;
            token: string;
        };
        /** @enum {string} */
        Role: "member" | "admin" | "owner";
        Sandbox: {
            /** @description What runs instead of the image's entrypoint and command. */
            command: string[] | null;
            /** Format: date-time */
            readonly createdAt: string;
            readonly createdBy: string;
            /** @description The names of the environment variables that were set for it. Their values are never shown. */
            readonly envNames: string[];
            readonly exitCode: number | null;
            /** Format: date-time */
            readonly expiresAt: string | null;
            /** @description What its user can do about it, if it failed. */
            readonly hint: string | null;
            readonly id: string;
            /** @description Seconds without use after which it ends. Null: it may be idle. */
            idleTimeoutSeconds: number | null;
            image: string;
            readonly imageDigest: string | null;
            imageId: string;
            labels: {
                [key: string]: string;
            };
            /**
             * Format: date-time
             * @description Since it is ready, recorded every few seconds.
             */
            readonly lastUsedAt: string | null;
            memoryMb: number;
            readonly message: string | null;
            name: string;
            /** @description While it is provisioning: how much of the layers that its image still lacked has come. Null where there was nothing to download, and on Kubernetes. */
            readonly pull: components["schemas"]["PullProgress"] | null;
            readinessPort: number | null;
            /** Format: date-time */
            readonly readyAt: string | null;
            readonly state: components["schemas"]["SandboxState"];
            /**
             * @description Why it is not, or no longer, ready. More may come.
             *
             *     - `stopped_by_user`: A user stopped it.
             *     - `stopped_by_operator`: An operator stopped it.
             *     - `ttl_expired`: Its time to live ended.
             *     - `idle`: Nothing used it for as long as it may be idle.
             *     - `workspace_deleted`: Its workspace was deleted.
             *     - `image_pull_unauthorized`: The registry refused the credential, or there was none.
             *     - `image_not_found_in_registry`: The registry, or for a `localhost/` image the engine, has no such image.
             *     - `image_invalid`: The image's manifest, signature or platform can't be used.
             *     - `image_pull_failed`: The image could not be pulled or stored; none of the other reasons applies.
             *     - `registry_unreachable`: The registry did not respond, or refused because of too many requests.
             *     - `pull_timeout`: The image was not pulled and started in time.
             *     - `provisioning_failed`: The cluster refused the sandbox, by a quota, a limit or a policy.
             *     - `unschedulable`: No node could take it in time, or its node refused it.
             *     - `node_error`: Its node could not prepare a place for it, such as its network.
             *     - `container_config_error`: The image can't run under the platform's rules.
             *     - `start_failed`: The container was created, but its program could not be started.
             *     - `isolation_unavailable`: The rules that isolate sandboxes could not be set up.
             *     - `runtime_unavailable`: The engine or cluster could not be reached for as long as a pull may take.
             *     - `out_of_memory`: It used more memory than its limit and was killed.
             *     - `disk_full`: It wrote more to its disk than it may.
             *     - `readiness_timeout`: It ran, but was not ready in time.
             *     - `exited`: Its program ended by itself. `exit_code` is its code, or 128 plus the number of the signal that ended it.
             *     - `evicted`: Its node was short of memory, disk or inodes and ended it.
             *     - `preempted`: It had to make room for more important work.
             *     - `node_drained`: Its node was taken out of service.
             *     - `node_lost`: Its node stopped answering or was restarted.
             *     - `runtime_lost`: Its container was removed from outside the platform.
             */
            readonly stateReason: components["schemas"]["StateReason"] | null;
            /** Format: date-time */
            readonly stoppedAt: string | null;
            readonly timeline: components["schemas"]["TimelineEntry"][];
            /** @description Seconds from its start after which it ends, unless it is extended. */
            ttlSeconds: number | null;
            /** Format: date-time */
            readonly updatedAt: string;
            readonly workspaceId: string;
        };
        SandboxList: {
            /** @description Send it as `cursor` to get the next page; null on the last page. */
            nextCursor: string | null;
            sandboxes: components["schemas"]["Sandbox"][];
        };
        /** @enum {string} */
        SandboxState: "provisioning" | "ready" | "stopping" | "stopped" | "failed";
        SecondFactor: {
            enabled: boolean;
            recoveryCodesLeft: number;
        };
        Session: {
            /** @description The client's address then. */
            address: string | null;
            /** Format: date-time */
            readonly createdAt: string;
            /** @description Whether the request was made with it. */
            current: boolean;
            readonly id: string;
            /**
             * Format: date-time
             * @description When it was signed in or refreshed last.
             */
            lastSeenAt: string;
            userAgent: string | null;
        };
        SessionList: {
            /** @description Send it as `cursor` to get the next page; null on the last page. */
            nextCursor: string | null;
            sessions: components["schemas"]["Session"][];
        };
        SessionTokens: {
            success: boolean;
            tokens: {
                accessToken: string;
                /** @description Seconds */
                expiresIn: number;
                /** @description Seconds */
                refreshExpiresIn: number;
                refreshToken: string;
            };
        };
        SignalProcess: {
            /** @description The name of a signal of Linux, with or without SIG. */
            signal: string;
        };
        StartProcess: {
            /** @description The program and its arguments, or a text for `/bin/sh -c`. */
            command: string | string[];
            /** @description The image's folder by default, to which it is relative. */
            cwd?: string;
            /** @description Of `stdin`; `utf8` by default. */
            encoding?: components["schemas"]["Encoding"];
            /** @description Added to the sandbox's environment. */
            env?: {
                [key: string]: string;
            };
            pty?: components["schemas"]["Terminal"];
            /** @description What it reads, 512 KiB at most, in `encoding`. */
            stdin?: string;
            /** @description `stdin` stays open after what the command brings along. A terminal's always does. */
            stdinOpen?: boolean;
            /** @description To find it by. */
            tag?: string;
            /** @description None by default. Then the whole tree gets SIGTERM, and SIGKILL 2 s later. */
            timeoutSeconds?: number;
            /** @description A name, `uid` or `uid:gid`. The image's user by default. */
            user?: string;
        };
        /** @enum {string} */
        StateReason: "stopped_by_user" | "stopped_by_operator" | "ttl_expired" | "idle" | "workspace_deleted" | "image_pull_unauthorized" | "image_not_found_in_registry" | "image_invalid" | "image_pull_failed" | "registry_unreachable" | "pull_timeout" | "provisioning_failed" | "unschedulable" | "node_error" | "container_config_error" | "start_failed" | "isolation_unavailable" | "runtime_unavailable" | "out_of_memory" | "disk_full" | "readiness_timeout" | "exited" | "evicted" | "preempted" | "node_drained" | "node_lost" | "runtime_lost";
        Success: {
            success: boolean;
        };
        TakenInput: {
            closed: boolean;
            /** @description Bytes of input taken so far. */
            offset: number;
        };
        Terminal: {
            cols: number;
            rows: number;
        };
        Ticket: {
            /** Format: date-time */
            readonly expiresAt: string;
            ticket: string;
        };
        TimelineEntry: {
            /** Format: date-time */
            readonly at: string;
            /** @enum {string} */
            phase: "accepted" | "image_pulled" | "created" | "started" | "ready" | "stopped";
        };
        UpdateImage: {
            description?: string | null;
            /** @description True by default. */
            enabled?: boolean;
            image?: string;
            /** @description Makes it a global default. For operators only. */
            isDefault?: boolean;
            /** @description In MiB. 1024 by default. */
            memoryMb?: number;
            name?: string;
            /** @description A sandbox is ready once `GET /` on this port answers 200 to 399 within 2 s. A redirect counts as such an answer. On Kubernetes a redirect to the same host is followed, and the last answer counts. Without a port, a sandbox is ready once a program can run in it. */
            readinessPort?: number | null;
            /** @description The registry credential to pull with. */
            registryId?: string | null;
            /** @description By default the tag in `image`, otherwise `latest`. */
            tag?: string;
            ttlSeconds?: number | null;
        };
        UpdateMember: {
            role: components["schemas"]["Role"];
        };
        UpdateRegistry: {
            name?: string;
            password?: string;
            /** @description `[http(s)://]host[:port]` */
            url?: string;
            username?: string;
        };
        UpdateUser: {
            enabled: boolean;
        };
        User: {
            /** Format: date-time */
            readonly createdAt: string;
            /** @description A disabled user can't sign in, and the user's tokens are refused. */
            enabled: boolean;
            readonly id: string;
            readonly operator: boolean;
            readonly username: string;
            readonly verified: boolean;
        };
        UserList: {
            /** @description Send it as `cursor` to get the next page; null on the last page. */
            nextCursor: string | null;
            users: components["schemas"]["User"][];
        };
        Username: {
            username: string;
        };
        VerifyEmail: {
            /** @description The account's password from now on, whatever it was registered with. One that is easy to guess is refused. */
            password: string;
            token: string;
        };
        WaitForProcess: {
            /** @description 60 by default. */
            timeoutSeconds?: number;
        };
        WaitForSandbox: {
            /** @description Id or name. */
            sandboxId: string;
            /** @description 60 by default. */
            timeoutSeconds?: number;
        };
        Workspace: {
            /** Format: date-time */
            readonly createdAt: string;
            readonly id: string;
            name: string;
            readonly role: components["schemas"]["Role"];
            /** Format: date-time */
            readonly updatedAt: string;
        };
        WorkspaceFields: {
            name: string;
        };
        WorkspaceList: {
            /** @description Where clients work unless a workspace is named: the one that a token is bound to, else the oldest that you own and that counts towards your quotas, at first the personal one. Nobody else can choose it for you. Null when there is none. */
            defaultWorkspaceId: string | null;
            /** @description Send it as `cursor` to get the next page; null on the last page. */
            nextCursor: string | null;
            workspaces: components["schemas"]["Workspace"][];
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export type operations = Record<string, never>;
