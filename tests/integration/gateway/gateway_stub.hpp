// Clients of a GatewayProcess.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "openshell.grpc.pb.h"
#include "tests/integration/gateway/gateway_process.hpp"

namespace openshell::gateway {

using Stub = std::unique_ptr<openshell::v1::OpenShell::Stub>;

struct ClientTls {
  std::string ca;
  std::string certificate;
  std::string key;
};

inline ClientTls own_tls(const GatewayProcess& gateway) {
  return {file_content(gateway.tls() + "/ca.crt"), file_content(gateway.tls() + "/client/tls.crt"),
          file_content(gateway.tls() + "/client/tls.key")};
}

inline Stub connect(const GatewayProcess& gateway, const ClientTls& tls) {
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = tls.ca;
  options.pem_cert_chain = tls.certificate;
  options.pem_private_key = tls.key;
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return openshell::v1::OpenShell::NewStub(grpc::CreateCustomChannel(gateway.target(), grpc::SslCredentials(options), arguments));
}
inline Stub connect_plain(const GatewayProcess& gateway) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return openshell::v1::OpenShell::NewStub(grpc::CreateCustomChannel(gateway.target(), grpc::InsecureChannelCredentials(), arguments));
}

struct Headers {
  std::vector<std::pair<std::string, std::string>> values;
};
inline void prepare(grpc::ClientContext& ctx, const Headers& headers) {
  ctx.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds{10});
  for (const auto& [key, value] : headers.values) ctx.AddMetadata(key, value);
}

}  // namespace openshell::gateway
