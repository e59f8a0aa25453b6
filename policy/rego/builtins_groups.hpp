// The groups of built-ins, each a table of its file; builtins.cpp enters them in the registry. Internal.
#pragma once

#include "policy/rego/builtins.hpp"

namespace openshell::policy::rego {

const BuiltinTable& context_builtins();         ///< trace, opa.runtime, rego.*, internal.*
const BuiltinTable& crypto_builtins();          ///< crypto.*
const BuiltinTable& encoding_builtins();        ///< base64*, hex, uri, urlquery
const BuiltinTable& glob_builtins();            ///< glob.*
const BuiltinTable& graph_builtins();           ///< graph.*, walk
const BuiltinTable& json_builtins();            ///< json.marshal to json.unmarshal
const BuiltinTable& json_path_builtins();       ///< json.filter, json.remove, json.patch
const BuiltinTable& json_schema_builtins();     ///< json.match_schema, json.verify_schema
const BuiltinTable& jwt_builtins();             ///< io.jwt.*
const BuiltinTable& name_builtins();            ///< units, uuid, semver
const BuiltinTable& net_builtins();             ///< net.cidr_*
const BuiltinTable& regex_builtins();           ///< regex.*, re_match
const BuiltinTable& regex_template_builtins();  ///< regex.template_match, regex.globs_match
const BuiltinTable& template_builtins();        ///< strings.render_template
const BuiltinTable& time_builtins();            ///< time.*
const BuiltinTable& yaml_builtins();            ///< yaml.*

}  // namespace openshell::policy::rego
