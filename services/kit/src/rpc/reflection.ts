import {
  createRegistry,
  type DescFile,
  type DescService,
  type MessageInitShape,
  type Registry,
  toBinary,
} from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import { Code, type ConnectRouter } from "@connectrpc/connect";
import {
  ServerReflection,
  type ServerReflectionRequest,
  type ServerReflectionResponseSchema,
} from "@sandgate/proto/grpc/reflection/v1/reflection";

type Request = ServerReflectionRequest["messageRequest"];
type Answer = NonNullable<MessageInitShape<typeof ServerReflectionResponseSchema>["messageResponse"]>;

/** Registers the standard gRPC server reflection, by which tools such as grpcurl learn what these services offer. */
export function addReflection(router: ConnectRouter, services: readonly DescService[]): void {
  const offered = [...services, ServerReflection];
  const files = collectFiles(offered.map(({ file }) => file));
  const registry = createRegistry(...files.values());

  function answer(question: Request): Answer {
    switch (question.case) {
      case "listServices":
        return {
          case: "listServicesResponse",
          value: { service: offered.map(({ typeName }) => ({ name: typeName })) },
        };
      case "fileByFilename":
        return answerFile(files.get(question.value));
      case "fileContainingSymbol":
        return answerFile(findSymbol(registry, question.value));
      case "fileContainingExtension": {
        const { containingType, extensionNumber } = question.value;
        const extendee = registry.getMessage(containingType);
        return answerFile(extendee && registry.getExtensionFor(extendee, extensionNumber)?.file);
      }
      case "allExtensionNumbersOfType": {
        const baseTypeName = question.value;
        if (!registry.getMessage(baseTypeName)) return notFound;
        const extensionNumber = [...registry].flatMap((type) =>
          type.kind === "extension" && type.extendee.typeName === baseTypeName ? [type.number] : [],
        );
        return { case: "allExtensionNumbersResponse", value: { baseTypeName, extensionNumber } };
      }
      case undefined:
        return {
          case: "errorResponse",
          value: { errorCode: Code.InvalidArgument, errorMessage: "The request is empty." },
        };
    }
  }

  router.service(ServerReflection, {
    async *serverReflectionInfo(requests) {
      for await (const request of requests) {
        yield { validHost: request.host, originalRequest: request, messageResponse: answer(request.messageRequest) };
      }
    },
  });
}

const notFound: Answer = {
  case: "errorResponse",
  value: { errorCode: Code.NotFound, errorMessage: "Not found." },
};

/** Answers with the file and everything that it imports, so that one request is enough. */
function answerFile(file: DescFile | undefined): Answer {
  if (!file) return notFound;
  const fileDescriptorProto = [...collectFiles([file]).values()].map(({ proto }) =>
    toBinary(FileDescriptorProtoSchema, proto),
  );
  return { case: "fileDescriptorResponse", value: { fileDescriptorProto } };
}

/** Returns the files and all that they import, by name, each before what it imports. */
function collectFiles(from: readonly DescFile[]): Map<string, DescFile> {
  const files = new Set<DescFile>();
  const add = (file: DescFile) => {
    if (files.has(file)) return;
    file.dependencies.forEach(add);
    files.add(file);
  };
  from.forEach(add);
  return new Map([...files].reverse().map((file) => [file.proto.name, file]));
}

/** Returns the file of a message, enum, extension or service, or of something within one ("package.Service.Method"). */
function findSymbol(registry: Registry, symbol: string): DescFile | undefined {
  return (registry.get(symbol) ?? registry.get(symbol.slice(0, symbol.lastIndexOf("."))))?.file;
}
