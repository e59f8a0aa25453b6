#include <cstdio>
#include <cstdlib>
#include <map>

#include "api/service.hpp"
#include "openshell.pb.h"

namespace openshell::api {

struct Router::Impl {
  std::map<std::string, Start, std::less<>> handlers;
  const google::protobuf::ServiceDescriptor* service = openshell::v1::HealthRequest::descriptor()->file()->FindServiceByName("OpenShell");
};

Router::Router() : impl_{std::make_unique<Impl>()} {}
Router::~Router() = default;

const Router::Start* Router::find(std::string_view method) const {
  const auto found = impl_->handlers.find(method);
  return found == impl_->handlers.end() ? nullptr : &found->second;
}

void Router::add(std::string_view method, Kind kind, std::string_view request, std::string_view response, Start start) {
  const std::string name{method};
  const auto* described = impl_->service->FindMethodByName(name);
  const bool streams_in = kind == Kind::kClientStream || kind == Kind::kBidi;
  const bool streams_out = kind == Kind::kServerStream || kind == Kind::kBidi;
  const bool fits = described != nullptr && described->input_type()->full_name() == request &&
                    described->output_type()->full_name() == response && described->client_streaming() == streams_in &&
                    described->server_streaming() == streams_out;
  if (!fits || !impl_->handlers.emplace(name, std::move(start)).second) {
    std::fprintf(stderr, "handler for %s does not fit the service's descriptor, or there are two\n", name.c_str());
    std::abort();
  }
}

}  // namespace openshell::api
