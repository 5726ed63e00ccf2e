-- Sends every new ultrasound image to the node USDEHAZE (one of DicomModalities in orthanc.json), which sends back the
-- dehazed one. Derived images are not sent: neither the node's own nor anyone else's.

function OnStoredInstance(instance, tags)
  local derived = string.sub(tags['ImageType'] or '', 1, 7) == 'DERIVED'
  if tags['Modality'] == 'US' and not derived then
    SendToModality(instance, 'USDEHAZE')
  end
end
