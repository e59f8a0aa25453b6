// Forward declarations of the policy messages of proto/sandbox.proto, so that headers of this folder stay light. Whoever makes one includes
// "sandbox.pb.h".
#pragma once

namespace openshell::sandbox::v1 {
class SandboxPolicy;
class FilesystemPolicy;
class LandlockPolicy;
class ProcessPolicy;
class NetworkPolicyRule;
class NetworkBinary;
class NetworkEndpoint;
class NetworkMiddlewareConfig;
class L7Rule;
class L7Allow;
class L7DenyRule;
class L7QueryMatcher;
class McpOptions;
class SandboxConfigSnapshot;
class SettingValue;
class EffectiveSetting;
}  // namespace openshell::sandbox::v1

namespace openshell::policy {
namespace pb = openshell::sandbox::v1;
}
