// Package response lets handlers of streams decide when what they send is flushed.
package response

import (
	"context"
	"net/http"
	"time"
)

// MaxHold is how long a first message, which says little, may wait for what follows, to be sent with it.
const MaxHold = 2 * time.Millisecond

type control struct{}

// Held keeps what a handler sends until it flushes or returns: each flush passes the engine, its shim and the platform's
// process, where Connect makes one of each message.
func Held(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		ctx := context.WithValue(request.Context(), control{}, http.NewResponseController(response))
		handler.ServeHTTP(unflushed{response}, request.WithContext(ctx))
	})
}

// ControlOf is for the context of a call whose handler is Held.
func ControlOf(ctx context.Context) *http.ResponseController {
	return ctx.Value(control{}).(*http.ResponseController)
}

type unflushed struct{ http.ResponseWriter }

func (unflushed) Flush() {}
