module sandgate/helper

go 1.26.0

toolchain go1.26.8

tool (
	connectrpc.com/connect/cmd/protoc-gen-connect-go
	google.golang.org/protobuf/cmd/protoc-gen-go
)

require (
	connectrpc.com/connect v1.21.1
	golang.org/x/sys v0.49.0
	google.golang.org/protobuf v1.36.12
)
