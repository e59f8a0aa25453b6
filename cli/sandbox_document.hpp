#pragma once

#include <boost/json/object.hpp>
#include <string>

namespace openshell::v1 {
class Sandbox;
}
namespace openshell::sandbox::v1 {
class SandboxPolicy;
}

namespace openshell::cli {

/// `Ready`, `Provisioning`, ...; `Unknown` for a number this client does not know.
std::string phase_name(int phase);
/// The object that `sandbox list` and `sandbox create -o json` print for one sandbox.
boost::json::object sandbox_document(const v1::Sandbox& sandbox);
/// A policy with the keys of the policy file.
boost::json::value policy_document(const sandbox::v1::SandboxPolicy& policy);
/// `<reason>: <message>` of the Ready condition while it is false; empty otherwise.
std::string not_ready_reason(const v1::Sandbox& sandbox);

}  // namespace openshell::cli
