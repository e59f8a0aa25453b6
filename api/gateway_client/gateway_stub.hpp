// The generated stub, for the sources of this folder only: its header costs five seconds a file.
#pragma once

#include <grpcpp/channel.h>

#include <memory>

#include "api/gateway_client/gateway_connection.hpp"
#include "openshell.grpc.pb.h"

namespace openshell::api {

class GatewayConnection::Stub {
 public:
  explicit Stub(const std::shared_ptr<grpc::Channel>& channel) : rpc{openshell::v1::OpenShell::NewStub(channel)} {}
  std::unique_ptr<openshell::v1::OpenShell::Stub> rpc;
};

}  // namespace openshell::api
